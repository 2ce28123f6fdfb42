cimport cython
from broker.injection.points cimport FaultInjection
from broker.replicas.partition.delayed_operations cimport DelayedOperations
from broker.replicas.partition.unconfirmed_writes cimport UnconfirmedWrites
from protocol.batch cimport RecordBatch
from storage.config cimport LogConfig
from storage.log cimport Log
from storage.producers cimport ProducerStateManager

cdef class Partition:
    cdef object __weakref__
    cdef public tuple key, _logged_damage
    cdef public object topic, leading, offline, name, topic_id, following, _clock, _verification_enabled, listener, replicas, isr
    cdef public bint is_internal, unflushed, high_watermark_moved, leads_alone, _requires_first_sequence_0
    cdef public long long index, leader_epoch, leader_id, high_watermark, _node_id, _served_offset, _checked_offset
    cdef public Log log
    cdef public FaultInjection _injection
    cdef public UnconfirmedWrites unconfirmed
    cdef public DelayedOperations delayed
    @cython.locals(log=Log, config=LogConfig)
    cpdef append_as_sent(self, RecordBatch batch, object required_acks, object guard=*, object limits=*)
    @cython.locals(producers=ProducerStateManager)
    cpdef _check_producer(self, RecordBatch batch, object origin, object guard)
    @cython.locals(log=Log, base_offset=cython.longlong, last_offset=cython.longlong)
    cpdef _append(self, RecordBatch batch, long long now_ms, long long log_append_time_ms, object marker=*)
    @cython.locals(batch=RecordBatch)
    cpdef append_internal(self, object records, object guard=*, bint verified=*, int required_acks=*)
    cpdef append_marker(self, object producer_id, object producer_epoch, object marker, object transaction_version)
    cpdef bint has_enough_replicas(self) except? -1
    @cython.locals(log=Log, unconfirmed=UnconfirmedWrites, end_offset=cython.longlong)
    cpdef advance_high_watermark(self)
