from broker.coordinator_runtime.shard cimport CoordinatorShard
from broker.transactions.transaction cimport Transaction
from protocol.batch cimport EndTxnMarker

cdef class Entry:
    cdef public Transaction txn
    cdef public object pending, completion
    cdef public bint failed_fence

cdef class PendingCompleteTxn:
    cdef public CoordinatorShard shard
    cdef public Entry entry
    cdef public object producer_id, epoch, transaction_version, _ended
    cdef public EndTxnMarker marker
    cdef public set remaining
    cdef public bint cancelled
    cdef object __weakref__
