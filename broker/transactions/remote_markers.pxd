from broker.transactions.shard cimport Entry, TransactionShard
from protocol.batch cimport EndTxnMarker

cdef class PendingCompleteTxn:
    cdef public TransactionShard shard
    cdef public Entry entry
    cdef public object producer_id, epoch, transaction_version, then
    cdef public EndTxnMarker marker
    cdef public set remaining
    cdef public bint cancelled
    cdef object __weakref__
