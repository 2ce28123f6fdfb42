cdef extern from *:
    """
    typedef struct { PyObject_HEAD PyObject *attributes; PyObject *base_offset; PyObject *base_sequence; PyObject *base_timestamp; PyObject *buffer; PyObject *crc; PyObject *last_offset_delta; PyObject *magic; PyObject *max_timestamp; PyObject *partition_leader_epoch; PyObject *producer_epoch; PyObject *producer_id; PyObject *record_count; PyObject *size; PyObject *start; } Slots_RecordBatch;
    """
    ctypedef class protocol.batch.RecordBatch [object Slots_RecordBatch, check_size ignore]:
        cdef object attributes
        cdef object base_offset
        cdef object base_sequence
        cdef object base_timestamp
        cdef object buffer
        cdef object crc
        cdef object last_offset_delta
        cdef object magic
        cdef object max_timestamp
        cdef object partition_leader_epoch
        cdef object producer_epoch
        cdef object producer_id
        cdef object record_count
        cdef object size
        cdef object start

cdef extern from *:
    ctypedef class protocol.batch.EndTxnMarker [object PyTupleObject, check_size ignore]:
        cdef object committed "ob_item[0]"
        cdef object coordinator_epoch "ob_item[1]"
