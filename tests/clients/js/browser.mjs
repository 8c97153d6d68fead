// A person in front of the pages of the authorization endpoint, who signs in and says yes.

const attribute = (text, pattern) => text.match(pattern)[1].replaceAll('&amp;', '&').replaceAll('&#34;', '"');

async function submit(page, url, hidden, fields) {
  const text = await page.text();
  const action = new URL(attribute(text, /<form method="post" action="([^"]*)"/), url);
  const held = attribute(text, new RegExp(`name="${hidden}" value="([^"]*)"`));
  const body = new URLSearchParams({ [hidden]: held, ...fields });
  return fetch(action, { method: 'POST', body, redirect: 'manual' });
}

// Where the browser is sent once the person has allowed what is asked for at this address.
export async function allow(url, person) {
  const signedIn = await submit(await fetch(url), url, 'request', { person: person.id, secret: person.secret });
  const answered = await submit(signedIn, url, 'consent', { answer: 'allow' });
  return new URL(answered.headers.get('location'));
}
