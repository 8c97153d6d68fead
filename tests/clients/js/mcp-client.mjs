// @modelcontextprotocol/client (2.x): from a 401 to a tool's answer. Given `clientSecret` or `key` it finds its own way
// to a token (RFC 9728, RFC 8414, client_credentials); given `token`, it has one.

import { Client, ClientCredentialsProvider, CrossAppAccessProvider, PrivateKeyJwtProvider, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { journey } from './mcp-journey.mjs';

await journey({ Client, ClientCredentialsProvider, CrossAppAccessProvider, PrivateKeyJwtProvider, StreamableHTTPClientTransport });
