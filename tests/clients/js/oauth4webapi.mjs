// oauth4webapi, as an orchestrator uses it: discover, get a token for the API, exchange a grant, use, ask, revoke.
// Given `key`, a private JWK, it proves itself by private_key_jwt; given `dpop`, it binds its tokens to a key.

import * as oauth from 'oauth4webapi';
import { ACCESS_TOKEN, DELEGATION_GRANT, TOKEN_EXCHANGE, exchangeParameters, given, refusal, signingKey, tell } from './scenario.mjs';

const insecure = { [oauth.allowInsecureRequests]: true };
const issuer = new URL(given.issuer);
const as = await oauth.processDiscoveryResponse(
  issuer,
  await oauth.discoveryRequest(issuer, { algorithm: 'oauth2', ...insecure }),
);
const resource = new URL(given.resource);
const guarded = await oauth.processResourceDiscoveryResponse(
  resource,
  await oauth.resourceDiscoveryRequest(resource, insecure),
);

const client = { client_id: given.clientId };
const authentication = given.key
  ? oauth.PrivateKeyJwt(await signingKey(given.key))
  : given.post
    ? oauth.ClientSecretPost(given.clientSecret)
    : oauth.ClientSecretBasic(given.clientSecret);
const DPoP = given.dpop ? oauth.DPoP(client, await oauth.generateKeyPair(given.dpop)) : undefined;
const options = { ...insecure, DPoP };

// A server may ask for its nonce; the library keeps it, and the second attempt carries it (RFC 9449 §8).
async function withNonce(request) {
  try {
    return await request();
  } catch (error) {
    if (!oauth.isDPoPNonceError(error)) throw error;
    return request();
  }
}

const forApi = await withNonce(async () =>
  oauth.processClientCredentialsResponse(
    as,
    client,
    await oauth.clientCredentialsGrantRequest(as, client, authentication, {}, options),
  ),
);

async function exchange(token, type) {
  return withNonce(async () =>
    oauth.processGenericTokenEndpointResponse(
      as,
      client,
      await oauth.genericTokenEndpointRequest(
        as,
        client,
        authentication,
        TOKEN_EXCHANGE,
        exchangeParameters(token, type),
        options,
      ),
    ),
  );
}
const exchanged = await exchange(given.grant, DELEGATION_GRANT);
const again = await exchange(exchanged.access_token, ACCESS_TOKEN);

async function call(token) {
  return withNonce(async () => {
    const response = await oauth.protectedResourceRequest(
      token,
      'POST',
      new URL('/v1/gateway/calls', issuer),
      new Headers({ 'content-type': 'application/json' }),
      JSON.stringify(given.call),
      options,
    );
    return response.json();
  });
}
const called = await call(exchanged.access_token);

// What a tool server that trusts the authorization server would check for itself (RFC 9068 §4).
const headers = { authorization: `${DPoP ? 'DPoP' : 'Bearer'} ${exchanged.access_token}` };
const claims = DPoP
  ? null
  : await oauth.validateJwtAccessToken(as, new Request(given.resource, { headers }), given.resource, insecure);

async function introspect(token) {
  return oauth.processIntrospectionResponse(
    as,
    client,
    await oauth.introspectionRequest(as, client, authentication, token, insecure),
  );
}
const before = await introspect(exchanged.access_token);
await oauth.processRevocationResponse(
  await oauth.revocationRequest(as, client, authentication, exchanged.access_token, insecure),
);
const after = await introspect(exchanged.access_token);

tell({
  forApi,
  exchanged,
  again,
  called,
  claims,
  before,
  after,
  guarded,
  refusedCall: await refusal(() => call(exchanged.access_token)),
  refusedExchange: await refusal(() => exchange(exchanged.access_token, ACCESS_TOKEN)),
});
