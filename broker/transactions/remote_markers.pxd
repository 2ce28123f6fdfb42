from broker.transactions.shard cimport Entry, TransactionShard

cdef class PendingCompleteTxn:
    cdef public TransactionShard shard
    cdef public Entry entry
    cdef public object producer_id, epoch, marker, transaction_version, then
    cdef public set remaining
    cdef public bint cancelled
    cdef object __weakref__
