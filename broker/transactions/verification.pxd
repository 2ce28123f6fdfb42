cimport cython
from broker.replicas.partition.partition cimport Partition
from storage.producers cimport ProducerStateEntry, ProducerStateManager

cdef class Check:
    cdef public Partition partition
    cdef public object producer_id, sequence, guard, error
    cdef public int epoch

cdef class Verifier:
    cdef public object _config, _clock, _transactions, _peers, _remote
    @cython.locals(producers=ProducerStateManager, entry=ProducerStateEntry)
    cpdef bint _is_asked(self, Check check, object now_ms, bint adds) except? -1
