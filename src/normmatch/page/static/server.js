// Talks to the server. Whatever goes wrong becomes an Error with one sentence for the user.

export async function send(address, form) {
  let answer;
  try {
    answer = await fetch(address, form ? { method: "POST", body: form } : {});
  } catch {
    throw new Error("The server cannot be reached; is `normmatch demo` still running?");
  }
  const content = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(content.error ?? `The server answered with ${answer.status}.`);
  return content;
}

export function formOf(fields) {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) form.append(name, value);
  return form;
}
