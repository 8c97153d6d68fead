"""What the demonstration needs around Subgrant: two tool servers, and a few support cases for them.

They are real servers in processes of their own. They know nothing of Subgrant but how to tell its gateway
from anybody else.
"""
