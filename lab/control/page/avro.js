// Decodes values in Avro's binary format, by a schema that the viewer has chosen. A schema registry's prefix is skipped.

const LOGICAL = {
  'timestamp-millis': (value) => new Date(value).toISOString(),
  'timestamp-micros': (value) => new Date(value / 1000).toISOString(),
  date: (value) => new Date(value * 86_400_000).toISOString().slice(0, 10),
}

/** A reader of bytes, from the front. */
class Reader {
  constructor(bytes) {
    this.bytes = bytes
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
    this.at = 0
  }

  take(count) {
    if (count < 0 || this.at + count > this.bytes.length) throw new Error('the value ends before its schema does')
    this.at += count
    return this.bytes.subarray(this.at - count, this.at)
  }

  /** Reads a zig-zag varint; returns text if a number cannot represent it exactly. */
  long() {
    let [found, shift] = [0n, 0n]
    for (;;) {
      const [byte] = this.take(1)
      found |= BigInt(byte & 0x7f) << shift
      if (byte < 0x80) break
      shift += 7n
      if (shift > 63n) throw new Error('a number is longer than ten bytes')
    }
    const value = BigInt.asIntN(64, (found >> 1n) ^ -(found & 1n))
    return Number.isSafeInteger(Number(value)) ? Number(value) : String(value)
  }

  size() {
    const size = this.long()
    if (!(size >= 0)) throw new Error(`a length cannot be ${size}`)
    return size
  }

  float(bytes) {
    this.take(bytes)
    return bytes === 4 ? this.view.getFloat32(this.at - 4, true) : this.view.getFloat64(this.at - 8, true)
  }
}

const hex = (bytes) => `0x${[...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('')}`

const PRIMITIVES = {
  null: () => null,
  boolean: (reader) => reader.take(1)[0] !== 0,
  int: (reader) => reader.long(),
  long: (reader) => reader.long(),
  float: (reader) => reader.float(4),
  double: (reader) => reader.float(8),
  bytes: (reader) => hex(reader.take(reader.size())),
  string: (reader) => new TextDecoder('utf-8', { fatal: true }).decode(reader.take(reader.size())),
}

/** Reads the blocks of an array or a map. A negative count is followed by the block's size in bytes. */
const blocks = (reader, each) => {
  for (let count = reader.long(); count !== 0; count = reader.long()) {
    if (!(Math.abs(count) <= 1e6)) throw new Error(`a block cannot have ${count} elements`)
    if (count < 0) reader.long()
    for (let left = Math.abs(count); left > 0; left -= 1) each()
  }
}

/** A schema with its named types, by name and by name with namespace. */
class Schema {
  constructor(schema) {
    this.names = new Map()
    this.root = schema
    this.learn(schema, '')
  }

  learn(schema, space) {
    if (Array.isArray(schema)) schema.forEach((each) => this.learn(each, space))
    if (schema === null || typeof schema !== 'object' || Array.isArray(schema)) return
    let inner = space
    if (schema.name && ['record', 'error', 'enum', 'fixed'].includes(schema.type)) {
      const cut = schema.name.lastIndexOf('.')
      inner = cut < 0 ? schema.namespace ?? space : schema.name.slice(0, cut)
      const short = schema.name.slice(cut + 1)
      this.names.set(short, schema)
      this.names.set(inner ? `${inner}.${short}` : short, schema)
    }
    for (const each of [schema.type, schema.items, schema.values]) this.learn(each, inner)
    for (const field of schema.fields ?? []) this.learn(field.type, inner)
  }

  read(reader, schema) {
    if (Array.isArray(schema)) {
      const at = reader.long()
      if (!(at in schema)) throw new Error(`the union has no branch ${at}`)
      return this.read(reader, schema[at])
    }
    if (typeof schema === 'string') {
      if (Object.hasOwn(PRIMITIVES, schema)) return PRIMITIVES[schema](reader)
      const named = this.names.get(schema)
      if (!named) throw new Error(`the schema has no type ${schema}`)
      return this.read(reader, named)
    }
    return this.readComplex(reader, schema)
  }

  readComplex(reader, schema) {
    switch (schema.type) {
      case 'record':
      case 'error':
        return Object.fromEntries(schema.fields.map(({ name, type }) => [name, this.read(reader, type)]))
      case 'enum':
        return schema.symbols[reader.long()] ?? null
      case 'fixed':
        return hex(reader.take(schema.size))
      case 'array': {
        const found = []
        blocks(reader, () => found.push(this.read(reader, schema.items)))
        return found
      }
      case 'map': {
        const found = []
        blocks(reader, () => found.push([PRIMITIVES.string(reader), this.read(reader, schema.values)]))
        return Object.fromEntries(found)
      }
    }
    const value = this.read(reader, schema.type)
    return typeof value === 'number' && LOGICAL[schema.logicalType] ? LOGICAL[schema.logicalType](value) : value
  }
}

/** Position of the value: after Confluent's zero byte and schema id, or Avro's own marker and fingerprint. */
const begin = (bytes) => bytes[0] === 0 && bytes.length > 5 ? 5 : bytes[0] === 0xc3 && bytes[1] === 1 ? 10 : 0

/** The decoded value as a JavaScript value. Throws an Error if the bytes do not match the schema. */
export const decode = (schema, bytes) => {
  const known = new Schema(schema)
  for (const at of new Set([begin(bytes), 0])) {
    const reader = new Reader(Uint8Array.from(bytes).subarray(at))
    try {
      const value = known.read(reader, known.root)
      if (reader.at < reader.bytes.length) throw new Error(`${reader.bytes.length - reader.at} bytes are left over`)
      return value
    } catch (error) {
      if (at === 0) throw error
    }
  }
}
