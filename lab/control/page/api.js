// Requests to the control port. A token, if the port has one, comes from the fragment (#token=…) or from the form, and stays in
// this tab. Streams are read by fetch: EventSource cannot send a token.

const KEY = 'odradek-token'

const fragment = /[#&]token=([^&]+)/.exec(location.hash)
if (fragment) {
  sessionStorage.setItem(KEY, decodeURIComponent(fragment[1]))
  location.replace(location.pathname + '#/transactions')
}

export class Refused extends Error {
  constructor(status, sentence) {
    super(sentence)
    this.status = status
  }
}

export const setToken = (token) => sessionStorage.setItem(KEY, token)

const headers = () => {
  const token = sessionStorage.getItem(KEY)
  return { 'Content-Type': 'application/json', ...(token ? { Authorization: `Bearer ${token}` } : {}) }
}

const open = async (method, path, { body, signal } = {}) => {
  const answer = await fetch(path, { method, headers: headers(), body: body && JSON.stringify(body), signal })
  if (answer.ok) return answer
  const said = await answer.json().catch(() => ({ error: answer.statusText }))
  throw new Refused(answer.status, said.error)
}

export const get = async (path) => (await open('GET', path)).json()
export const post = async (path, body) => (await open('POST', path, { body: body ?? {} })).json()
export const remove = async (path) => (await open('DELETE', path)).json()

/** Yields the pieces of a stream, separated by `end`, until the signal or the end. */
async function* pieces(path, end, signal) {
  const reader = (await open('GET', path, { signal })).body.pipeThrough(new TextDecoderStream()).getReader()
  let kept = ''
  for (;;) {
    const { value, done } = await reader.read()
    if (done) return
    const parts = (kept + value).split(end)
    kept = parts.pop()
    yield* parts
  }
}

/** Yields server-sent events: [name, data]. */
export async function* events(path, signal) {
  for await (const piece of pieces(path, '\n\n', signal)) {
    const lines = piece.split('\n')
    const name = lines.find((line) => line.startsWith('event: '))
    const data = lines.find((line) => line.startsWith('data: '))
    if (name && data) yield [name.slice(7), JSON.parse(data.slice(6))]
  }
}

export async function* lines(path, signal) {
  for await (const piece of pieces(path, '\n', signal)) if (piece) yield JSON.parse(piece)
}
