cimport cython
from broker.metadata.listeners cimport MetadataListener
from broker.replicas.partition.partition cimport Partition

@cython.final
cdef class ReplicaManager(MetadataListener):
    cdef dict __dict__
    cdef object __weakref__
    cdef public dict _partitions
    cdef public long long node_id
    @cython.locals(opened=Partition)
    cpdef leader(self, object topic, object index, object client_epoch=*)
    @cython.locals(partition=Partition)
    cpdef opened_leader(self, object topic, object index)
