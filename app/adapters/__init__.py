"""The world behind the ports: each adapter knows one outside thing, and none of them knows another."""
