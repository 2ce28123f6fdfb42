cimport cython
from protocol.batch cimport RecordBatch
from storage.config cimport LogConfig
from storage.producers cimport ProducerStateManager
from storage.reading cimport Place, ReadableLog
from storage.room cimport Room
from storage.segment cimport Segment

cdef class Log(ReadableLog):
    cdef public object directory, topic_id, epochs, _jitter, epoch_file_lock, _sealed, on_roll, on_snapshot_failed
    cdef public LogConfig config
    cdef public ProducerStateManager producers
    cdef public Room _room
    cdef public long long flushed_offset, truncations, last_snapshot_offset
    cdef public bint _closed_clean
    @cython.locals(base_offset=cython.longlong)
    cpdef long long append_data(self, RecordBatch batch, long long leader_epoch, long long now_ms, long long timestamp_ms) except? -1
    @cython.locals(offset=cython.longlong)
    cpdef long long append_marker(self, RecordBatch batch, object marker, long long leader_epoch, long long now_ms) except? -1
    @cython.locals(base_offset=cython.longlong, last_offset=cython.longlong, size=cython.longlong, max_timestamp_ms=cython.longlong, position=cython.longlong, place=Place, config=LogConfig, room=Room, segment=Segment)
    cpdef long long _append(self, RecordBatch batch, long long leader_epoch, long long now_ms) except? -1
