// Shows a key or a value in the format that the viewer has chosen: text, JSON, hexadecimal, or decoded by a schema.

/** The bytes of a key or value, which is sent as text or, if it is not UTF-8, in base64; null for Kafka's null. */
export const bytesOf = (text, base64) => {
  if (text !== null) return new TextEncoder().encode(text)
  return base64 === null ? null : Uint8Array.from(atob(base64), (character) => character.charCodeAt(0))
}

const hexLine = (bytes) => [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join(' ')

const pretty = (value) => JSON.stringify(value, null, 2)

/** {text, isOdd}: the text to show; odd if it is not in the chosen format. `decode` decodes Avro with its schema. */
export const shown = (text, base64, form, decode = null) => {
  const bytes = bytesOf(text, base64)
  if (bytes === null) return { text: 'null', isOdd: true }
  try {
    if (form === 'hex') return { text: hexLine(bytes), isOdd: false }
    if (form === 'json' && text !== null) return { text: pretty(JSON.parse(text)), isOdd: false }
    if (form === 'avro' && decode) return { text: pretty(decode(bytes)), isOdd: false }
  } catch (error) {
    return { text: text ?? hexLine(bytes), isOdd: true, error: error.message }
  }
  return { text: text ?? hexLine(bytes), isOdd: form !== 'text' || text === null }
}

/** Headers in the format of the form: one NAME=VALUE per line; a name alone has the value null. */
export const headersOf = (lines) => lines.split('\n').filter((line) => line.trim()).map((line) => {
  const at = line.indexOf('=')
  return at < 0 ? [line.trim(), null] : [line.slice(0, at).trim(), line.slice(at + 1)]
})

/** Milliseconds since the epoch for a date and time field, in UTC. */
export const timeOf = (text) => {
  const found = Date.parse(`${text}Z`)
  if (Number.isNaN(found)) throw new Error('Give a date and a time.')
  return Math.max(0, found)
}
