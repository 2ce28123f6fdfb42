from broker.replicas.manager cimport ReplicaManager
from broker.transactions.entry cimport PendingCompleteTxn
from broker.replicas.partition.partition cimport Partition

cdef class TransactionMarkerManager:
    cdef dict __dict__
    cdef public ReplicaManager _replicas
    cdef public object _groups, _clock, _life, _metadata, _peers, _one_by_one, _remote
