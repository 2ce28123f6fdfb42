cdef class Codec:
    cdef public object _decode, _decoded, _encode, _encoded, _sliced_decoder, _sliced_encoder
    cpdef decode_steps(self, object buffer, object offset=*, object elements_max=*)
    cpdef encode_steps(self, object message)
