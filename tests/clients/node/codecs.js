// kafkajs has gzip itself; for the other codecs it takes what its user brings. These three are JavaScript and
// WebAssembly, so that nothing has to be compiled.
'use strict'

const { CompressionCodecs, CompressionTypes } = require('kafkajs')
const lz4 = require('lz4js')
const snappy = require('kafkajs-snappy')
const { ZstdCodec } = require('zstd-codec')

const zstd = new Promise((resolve) => {
  ZstdCodec.run((binding) => resolve(new binding.Simple()))
})

CompressionCodecs[CompressionTypes.Snappy] = snappy
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async (encoder) => Buffer.from(lz4.compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from(lz4.decompress(buffer)),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from((await zstd).compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from((await zstd).decompress(buffer)),
})

module.exports = CompressionTypes
