cimport cython
from broker.coordinator_runtime.serving cimport ServingShards
from broker.metadata.listeners cimport MetadataListener
from broker.transactions.entry cimport Entry
from broker.transactions.shard cimport TransactionShard

@cython.final
cdef class TransactionCoordinator(MetadataListener):
    cdef dict __dict__
    cdef object __weakref__
    cdef public object _config, _clock, _metadata, _replicas, _injection, _markers, _fresh_id, _life, cleanup
    cdef public object _partitions
    cdef public object _runtime
    cdef public ServingShards _serving
    cpdef _find(self, str transactional_id)
