// openid-client, as an application that a person lets act for it at a tool server: code, PKCE, and a token for there.

import * as client from 'openid-client';
import { allow } from './browser.mjs';
import { given, refusal, tell } from './scenario.mjs';

const config = await client.discovery(new URL(given.issuer), given.clientId, undefined, client.None(), {
  algorithm: 'oauth2',
  execute: [client.allowInsecureRequests],
});
const DPoP = given.dpop ? client.getDPoPHandle(config, await client.randomDPoPKeyPair(given.dpop)) : undefined;
const pkceCodeVerifier = client.randomPKCECodeVerifier();
const expectedState = client.randomState();
const address = client.buildAuthorizationUrl(config, {
  redirect_uri: given.redirectUri,
  code_challenge: await client.calculatePKCECodeChallenge(pkceCodeVerifier),
  code_challenge_method: 'S256',
  resource: given.resource,
  state: expectedState,
});
const back = await allow(address, given.person);

const redeem = () => client.authorizationCodeGrant(config, back, { pkceCodeVerifier, expectedState }, {}, { DPoP });
const tokens = await redeem();
const response = await client.fetchProtectedResource(
  config,
  tokens.access_token,
  new URL('/v1/gateway/calls', given.issuer),
  'POST',
  JSON.stringify(given.call),
  new Headers({ 'content-type': 'application/json' }),
  { DPoP },
);
const called = await response.json();
tell({ tokens, called, redeemedAgain: await refusal(redeem), answer: Object.fromEntries(back.searchParams) });
