cimport cython
from broker.coordinator_runtime.shard cimport CoordinatorShard
from broker.replicas.partition.append_result cimport AppendResult
from broker.transactions.transaction cimport Transaction

cdef class Entry:
    cdef public Transaction txn
    cdef public object pending, remaining
    cdef public bint failed_fence

cdef class TransactionShard(CoordinatorShard):
    cdef public dict entries
    cdef public set open_ids
    cpdef install(self, Entry entry, Transaction txn)
    @cython.locals(result=AppendResult)
    cpdef _write(self, object records, object then)
