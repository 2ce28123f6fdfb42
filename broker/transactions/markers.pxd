from broker.replicas.manager cimport ReplicaManager
from broker.transactions.remote_markers cimport PendingCompleteTxn
from broker.replicas.partition.partition cimport Partition

cdef class TransactionMarkerManager:
    cdef dict __dict__
    cdef public ReplicaManager _replicas
    cdef public object _groups, _clock, _metadata, _peers, _one_by_one, _remote
