// What a scenario is given, as JSON on standard input, and what it tells, as one line of JSON on standard output.

import { readFileSync } from 'node:fs';

export const TOKEN_EXCHANGE = 'urn:ietf:params:oauth:grant-type:token-exchange';
export const ACCESS_TOKEN = 'urn:ietf:params:oauth:token-type:access_token';
export const DELEGATION_GRANT = 'urn:subgrant:params:oauth:token-type:delegation-grant';

export const given = JSON.parse(readFileSync(0, 'utf8'));

export function tell(document) {
  console.log(JSON.stringify(document));
}

// The parameters of the exchange that the test asks for (RFC 8693 §2.1, RFC 8707, RFC 9396).
export function exchangeParameters(subjectToken, subjectTokenType) {
  return {
    subject_token: subjectToken,
    subject_token_type: subjectTokenType,
    resource: given.resource,
    authorization_details: JSON.stringify([{ type: 'delegation', ...given.narrowing }]),
  };
}

// The algorithm that a private JWK is for, as WebCrypto wants to hear it.
export async function signingKey(jwk) {
  const algorithm = jwk.kty === 'OKP' ? 'Ed25519' : { name: 'ECDSA', namedCurve: 'P-256' };
  return { key: await crypto.subtle.importKey('jwk', jwk, algorithm, false, ['sign']), kid: jwk.kid };
}

// What an error of an OAuth library says that the server said.
export async function refusal(attempt) {
  try {
    await attempt();
    return null;
  } catch (error) {
    return { error: error.error ?? error.code, status: error.status, challenge: error.cause?.[0]?.scheme };
  }
}
