// openid-client, the high-level library, through the same journey as oauth4webapi on which it stands.

import * as client from 'openid-client';
import { ACCESS_TOKEN, DELEGATION_GRANT, TOKEN_EXCHANGE, exchangeParameters, given, refusal, signingKey, tell } from './scenario.mjs';

const authentication = given.key
  ? client.PrivateKeyJwt(await signingKey(given.key))
  : client.ClientSecretBasic(given.clientSecret);
const config = await client.discovery(new URL(given.issuer), given.clientId, undefined, authentication, {
  algorithm: 'oauth2',
  execute: [client.allowInsecureRequests],
});
const DPoP = given.dpop ? client.getDPoPHandle(config, await client.randomDPoPKeyPair(given.dpop)) : undefined;

const forApi = await client.clientCredentialsGrant(config, {}, { DPoP });
const exchange = (token, type) =>
  client.genericGrantRequest(config, TOKEN_EXCHANGE, exchangeParameters(token, type), { DPoP });
const exchanged = await exchange(given.grant, DELEGATION_GRANT);

const call = async () => {
  const response = await client.fetchProtectedResource(
    config,
    exchanged.access_token,
    new URL('/v1/gateway/calls', given.issuer),
    'POST',
    JSON.stringify(given.call),
    new Headers({ 'content-type': 'application/json' }),
    { DPoP },
  );
  return response.json();
};
const called = await call();
const before = await client.tokenIntrospection(config, exchanged.access_token);
await client.tokenRevocation(config, exchanged.access_token);
const after = await client.tokenIntrospection(config, exchanged.access_token);

tell({
  metadata: config.serverMetadata(),
  forApi,
  exchanged,
  called,
  before,
  after,
  refusedCall: await refusal(call),
  refusedExchange: await refusal(() => exchange(exchanged.access_token, ACCESS_TOKEN)),
});
