// kafkajs has only gzip built in; its user registers other codecs. These two are pure JavaScript, so that nothing has to be
// compiled. There is none for lz4: the JavaScript library writes blocks that depend on each other, which Kafka refuses.
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
