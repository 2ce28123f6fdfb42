from broker.coordinator_runtime.shard cimport CoordinatorShard
from broker.transactions.entry cimport Entry
from broker.transactions.transaction cimport Transaction

cdef class TransactionShard(CoordinatorShard):
    cdef public dict entries
    cdef public set open_ids
    cpdef install(self, Entry entry, Transaction txn)
