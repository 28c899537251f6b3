// Talks to the server. Whatever goes wrong becomes an Error with one sentence for the user and the answer's status.

const TRIES = 5; // of a question that a busy server puts off
const PATIENCE = 10000; // milliseconds after which a server that says nothing is lost

export class ServerError extends Error {
  constructor(sentence, status, content = {}) {
    super(sentence);
    Object.assign(this, { status, content }); // status 0: no answer at all
  }
}

async function ask(address, question = {}, patience = PATIENCE) {
  for (let tried = 1; ; tried += 1) {
    const signal = patience ? AbortSignal.timeout(patience) : undefined;
    const answer = await fetch(address, { signal, ...question }).catch(() => {
      throw new ServerError("The server cannot be reached; is NormMatch still running?", 0);
    });
    const content = await answer.json().catch(() => ({}));
    if (answer.ok) return content;
    const wait = Number(answer.headers.get("Retry-After"));
    if (answer.status !== 503 || !wait || tried === TRIES) throw new ServerError(
      content.error ?? `The server answered with ${answer.status}.`, answer.status, content
    );
    await new Promise((done) => setTimeout(done, 1000 * wait));
  }
}

export const get = (address) => ask(address);

export const post = (address, content = {}, options = {}) =>
  ask(address, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(content), ...options });

// Ask with files, and with what is to be known about them: a line of JSON, then the files one after the other. There is
// no limit of time: a network on a slow machine may take long.
export function send(address, files, asked = {}, options = {}) {
  const named = files.map(({ name, size }) => ({ name, size }));
  const body = new Blob([JSON.stringify({ ...asked, files: named }), "\n", ...files]);
  return ask(address, { method: "POST", headers: { "Content-Type": "application/octet-stream" }, body, ...options }, 0);
}

// A picture that came in base64.
export const pictureOf = (base64) => new Blob(
  [Uint8Array.from(atob(base64), (character) => character.charCodeAt(0))], { type: "image/jpeg" }
);
