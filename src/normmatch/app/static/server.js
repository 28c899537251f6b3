// Talks to the server. Whatever goes wrong becomes an Error with one sentence for the user.

const TRIES = 5; // of a question that a busy server puts off

// Ask with files, and with what is to be known about them: a line of JSON, then the files one after the other.
export async function send(address, files = null, asked = {}) {
  const named = files?.map(({ name, size }) => ({ name, size }));
  const question = files && {
    method: "POST",
    headers: { "Content-Type": "application/octet-stream" },
    body: new Blob([JSON.stringify({ ...asked, files: named }), "\n", ...files]),
  };
  for (let tried = 1; ; tried += 1) {
    const answer = await fetch(address, question ?? {}).catch(() => {
      throw new Error("The server cannot be reached; is `normmatch demo` still running?");
    });
    const content = await answer.json().catch(() => ({}));
    if (answer.ok) return content;
    const wait = Number(answer.headers.get("Retry-After"));
    if (answer.status !== 503 || !wait || tried === TRIES) throw new Error(content.error ?? `The server answered with ${answer.status}.`);
    await new Promise((done) => setTimeout(done, 1000 * wait));
  }
}

// A picture that came in base64, as an address that an <img> takes.
export function pictureUrl(base64) {
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  return URL.createObjectURL(new Blob([bytes], { type: "image/jpeg" }));
}
