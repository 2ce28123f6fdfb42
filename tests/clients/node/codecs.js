// kafkajs has gzip itself; for the other codecs it takes what its user brings. These two are JavaScript, so that nothing
// has to be compiled. For lz4 there is no such codec: the one in JavaScript makes its blocks depend on each other, which
// Kafka refuses.
'use strict'

const { CompressionCodecs, CompressionTypes } = require('kafkajs')
const snappy = require('kafkajs-snappy')
const { ZstdCodec } = require('zstd-codec')

const zstd = new Promise((resolve) => {
  ZstdCodec.run((binding) => resolve(new binding.Simple()))
})

CompressionCodecs[CompressionTypes.Snappy] = snappy
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from((await zstd).compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from((await zstd).decompress(buffer)),
})

module.exports = CompressionTypes
