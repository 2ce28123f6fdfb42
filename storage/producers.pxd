cimport cython
from protocol.batch cimport RecordBatch

@cython.freelist(64)
cdef class BatchMetadata:
    cdef public long long first_sequence, last_sequence, first_offset, last_offset, timestamp_ms

cdef class ProducerStateEntry:
    cdef public long long producer_id, last_timestamp_ms, current_txn_first_offset
    cdef public int epoch, coordinator_epoch
    cdef public object batches
    cpdef take_epoch(self, int epoch)

cdef class ProducerStateManager:
    cdef public dict entries, verifications
    cdef public object _open, _unreplicated
    @cython.locals(entry=ProducerStateEntry, last=BatchMetadata)
    cpdef bint continues(self, RecordBatch batch) except? -1
    @cython.locals(entry=ProducerStateEntry, known=BatchMetadata, first=cython.longlong, last=cython.longlong)
    cpdef duplicate_of(self, RecordBatch batch)
    @cython.locals(entry=ProducerStateEntry, transactional=bint)
    cpdef check(self, RecordBatch batch, object origin, object guard, bint verification_enabled)
    cpdef bint _is_verified(self, object producer_id, object guard) except? -1
    @cython.locals(sequence=cython.longlong, last=cython.longlong, remembers_nothing=bint)
    cpdef bint _in_sequence(self, RecordBatch batch, ProducerStateEntry entry) except? -1
    @cython.locals(entry=ProducerStateEntry, strict=bint, repeated=bint)
    cpdef check_marker(self, object producer_id, int epoch, object marker, int transaction_version)
    @cython.locals(entry=ProducerStateEntry, first_sequence=cython.longlong, delta=cython.longlong, last_sequence=cython.longlong, added=BatchMetadata)
    cpdef update(self, RecordBatch batch, long long base_offset, long long timestamp_ms)
    @cython.locals(entry=ProducerStateEntry)
    cpdef complete(self, object producer_id, int epoch, object marker, long long offset, long long timestamp_ms)
    cpdef _forget_verification(self, object producer_id, int epoch)
    cpdef is_guard_current(self, object producer_id, object guard)
    @cython.locals(entry=ProducerStateEntry)
    cpdef bint has_open_transaction(self, object producer_id, int epoch) except? -1
    cpdef forget_replicated(self, long long high_watermark)
    @cython.locals(known=object)
    cpdef start_verification(self, object producer_id, int epoch, object sequence, bint supports_epoch_bump, object now_ms)
