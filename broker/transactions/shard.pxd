from broker.coordinator_runtime.shard cimport CoordinatorShard

cdef class Entry:
    cdef public object txn, pending, remaining
    cdef public bint failed_fence

cdef class TransactionShard(CoordinatorShard):
    cdef public dict entries
    cdef public set open_ids
    cpdef install(self, Entry entry, object txn)
    cpdef _write(self, object records, object then)
