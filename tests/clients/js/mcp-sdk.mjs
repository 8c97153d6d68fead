// @modelcontextprotocol/sdk (1.x), which most clients are made with: the same journey.

import { ClientCredentialsProvider, PrivateKeyJwtProvider } from '@modelcontextprotocol/sdk/client/auth-extensions.js';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { journey } from './mcp-journey.mjs';

await journey({ Client, ClientCredentialsProvider, PrivateKeyJwtProvider, StreamableHTTPClientTransport });
