// The journey that both generations of the MCP SDK make: connect, list the tools, call what the test says.

import { allow } from './browser.mjs';
import { given, tell } from './scenario.mjs';

// An application that a person signs in to: what it keeps is kept here, and the person answers at once.
class AppProvider {
  constructor() {
    this.redirectUrl = given.redirectUri;
    this.clientMetadata = { redirect_uris: [given.redirectUri], token_endpoint_auth_method: 'none' };
  }
  clientInformation() {
    return { client_id: given.clientId };
  }
  saveTokens(tokens) {
    this.saved = tokens;
  }
  tokens() {
    return this.saved;
  }
  saveCodeVerifier(verifier) {
    this.verifier = verifier;
  }
  codeVerifier() {
    return this.verifier;
  }
  async redirectToAuthorization(url) {
    this.back = await allow(url, given.person);
  }
}

function providerOf(sdk) {
  const who = { clientId: given.clientId, expectedIssuer: given.issuer, scope: given.scope };
  if (given.person) return new AppProvider();
  if (given.assertion) {
    const assertion = async () => given.assertion;
    return new sdk.CrossAppAccessProvider({ ...who, clientSecret: given.clientSecret, assertion });
  }
  if (given.clientSecret) return new sdk.ClientCredentialsProvider({ ...who, clientSecret: given.clientSecret });
  if (given.key) {
    return new sdk.PrivateKeyJwtProvider({ ...who, privateKey: given.key, algorithm: given.algorithm });
  }
  return undefined;
}

export async function journey(sdk) {
  const authProvider = providerOf(sdk);
  const newTransport = () =>
    new sdk.StreamableHTTPClientTransport(new URL(given.resource), {
      authProvider,
      requestInit: given.token ? { headers: { Authorization: `Bearer ${given.token}` } } : undefined,
    });
  const client = new sdk.Client({ name: 'tests', version: '1.0.0' });
  let transport = newTransport();
  try {
    await client.connect(transport);
  } catch (error) {
    if (!authProvider?.back) {
      tell({ refused: { name: error.constructor.name, message: error.message, code: error.code } });
      return;
    }
    await transport.finishAuth(authProvider.back.searchParams.get('code'), authProvider.back.searchParams.get('iss'));
    transport = newTransport();
    await client.connect(transport);
  }
  const { tools } = await client.listTools();
  const answers = [];
  for (const call of given.calls) {
    answers.push(await client.callTool(call).catch((error) => ({ error: { code: error.code, message: error.message } })));
  }
  const scope = (await authProvider?.tokens())?.scope ?? null;
  await client.close();
  tell({ server: client.getServerVersion(), protocol: transport.protocolVersion ?? null, tools, answers, scope });
}
