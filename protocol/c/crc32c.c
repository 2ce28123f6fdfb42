/* CRC-32C: by the processor's instruction if there is one, else by tables. A coordinator's batches have a hundred or
 * two bytes, for which the call of a library costs more than the computation. */

#include "core.h"

#define POLYNOMIAL 0x82F63B78u /* Castagnoli's, with reversed bits */

static uint32_t table[8][256];

static void tables_begin(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ POLYNOMIAL : crc >> 1;
        table[0][byte] = crc;
    }
    for (int ahead = 1; ahead < 8; ahead++)
        for (int byte = 0; byte < 256; byte++)
            table[ahead][byte] = table[ahead - 1][byte] >> 8 ^ table[0][table[ahead - 1][byte] & 0xFF];
}

static uint32_t by_tables(uint32_t crc, const uint8_t *data, Py_ssize_t size)
{
    for (; size >= 8; size -= 8, data += 8) {
        uint32_t low = crc ^ (data[0] | data[1] << 8 | data[2] << 16 | (uint32_t)data[3] << 24);
        crc = table[7][low & 0xFF] ^ table[6][low >> 8 & 0xFF] ^ table[5][low >> 16 & 0xFF] ^ table[4][low >> 24] ^
              table[3][data[4]] ^ table[2][data[5]] ^ table[1][data[6]] ^ table[0][data[7]];
    }
    for (; size > 0; size--) crc = crc >> 8 ^ table[0][(crc ^ *data++) & 0xFF];
    return crc;
}

static uint32_t (*update)(uint32_t, const uint8_t *, Py_ssize_t) = by_tables;

#if defined(__x86_64__)
#include <nmmintrin.h>

/* The instruction takes three cycles, and one can start in each cycle, so long data is read at three positions at once. The
 * first two results are then shifted by the number of bytes that follow them, with a table for a fixed number. */
#define STRIPE_BYTES 1024

static uint32_t moved[4][256];

__attribute__((target("sse4.2"))) static uint32_t by_instruction(uint32_t crc, const uint8_t *data, Py_ssize_t size)
{
    uint64_t first = crc;
    for (; size >= 8; size -= 8, data += 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        first = _mm_crc32_u64(first, word);
    }
    for (; size > 0; size--) first = _mm_crc32_u8((uint32_t)first, *data++);
    return (uint32_t)first;
}

static uint32_t move(uint32_t crc)
{
    return moved[0][crc & 0xFF] ^ moved[1][crc >> 8 & 0xFF] ^ moved[2][crc >> 16 & 0xFF] ^ moved[3][crc >> 24];
}

__attribute__((target("sse4.2"))) static uint32_t by_stripes(uint32_t crc, const uint8_t *data, Py_ssize_t size)
{
    while (size >= 3 * STRIPE_BYTES) {
        uint64_t first = crc, second = 0, third = 0, words[3];
        for (const uint8_t *end = data + STRIPE_BYTES; data < end; data += 8) {
            memcpy(&words[0], data, 8);
            memcpy(&words[1], data + STRIPE_BYTES, 8);
            memcpy(&words[2], data + 2 * STRIPE_BYTES, 8);
            first = _mm_crc32_u64(first, words[0]);
            second = _mm_crc32_u64(second, words[1]);
            third = _mm_crc32_u64(third, words[2]);
        }
        crc = move(move((uint32_t)first) ^ (uint32_t)second) ^ (uint32_t)third;
        data += 2 * STRIPE_BYTES;
        size -= 3 * STRIPE_BYTES;
    }
    return by_instruction(crc, data, size);
}

static void instruction_begin(void)
{
    static const uint8_t zeros[STRIPE_BYTES];
    if (!__builtin_cpu_supports("sse4.2")) return;
    for (int place = 0; place < 4; place++)
        for (uint32_t byte = 0; byte < 256; byte++)
            moved[place][byte] = byte & (byte - 1)
                                     ? moved[place][byte & (byte - 1)] ^ moved[place][byte & -byte]
                                     : by_instruction(byte << 8 * place, zeros, STRIPE_BYTES);
    update = by_stripes;
}
#else
static void instruction_begin(void) {}
#endif

void crc32c_begin(void)
{
    tables_begin();
    instruction_begin();
}

bool crc32c_in_hardware(void) { return update != by_tables; }

/* CRC of bytes that follow others with the CRC `crc`; 0 if they are the first. */
uint32_t crc32c_of(uint32_t crc, const uint8_t *data, Py_ssize_t size) { return ~update(~crc, data, size); }

/* crc32c(data, crc=0, in_hardware=True): for tests of both implementations. */
PyObject *core_crc32c(PyObject *module, PyObject *args)
{
    Py_buffer data;
    unsigned int crc = 0;
    int in_hardware = 1;
    if (!PyArg_ParseTuple(args, "y*|Ip:crc32c", &data, &crc, &in_hardware)) return NULL;
    crc = in_hardware ? crc32c_of(crc, data.buf, data.len) : ~by_tables(~crc, data.buf, data.len);
    PyBuffer_Release(&data);
    return PyLong_FromUnsignedLong(crc);
}
