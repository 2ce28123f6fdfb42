cdef extern from *:
    """
    typedef struct { PyObject_HEAD PyObject *cleanup_policy; PyObject *compression_gzip_level; PyObject *compression_lz4_level; PyObject *compression_type; PyObject *compression_zstd_level; PyObject *delete_retention_ms; PyObject *errors_deadletterqueue_group_enable; PyObject *file_delete_delay_ms; PyObject *flush_messages; PyObject *flush_ms; PyObject *follower_replication_throttled_replicas; PyObject *index_interval_bytes; PyObject *leader_replication_throttled_replicas; PyObject *local_retention_bytes; PyObject *local_retention_ms; PyObject *max_compaction_lag_ms; PyObject *max_decompressed_message_bytes; PyObject *max_message_bytes; PyObject *message_timestamp_after_max_ms; PyObject *message_timestamp_before_max_ms; PyObject *message_timestamp_type; PyObject *min_cleanable_dirty_ratio; PyObject *min_compaction_lag_ms; PyObject *min_insync_replicas; PyObject *preallocate; PyObject *remote_copy_lag_bytes; PyObject *remote_copy_lag_ms; PyObject *remote_log_copy_disable; PyObject *remote_log_delete_on_disable; PyObject *remote_storage_enable; PyObject *retention_bytes; PyObject *retention_ms; PyObject *segment_bytes; PyObject *segment_index_bytes; PyObject *segment_jitter_ms; PyObject *segment_ms; PyObject *stores_as_sent; PyObject *unclean_leader_election_enable; } Slots_LogConfig;
    """
    ctypedef class storage.config.LogConfig [object Slots_LogConfig, check_size ignore]:
        cdef object cleanup_policy
        cdef object compression_gzip_level
        cdef object compression_lz4_level
        cdef object compression_type
        cdef object compression_zstd_level
        cdef object delete_retention_ms
        cdef object errors_deadletterqueue_group_enable
        cdef object file_delete_delay_ms
        cdef object flush_messages
        cdef object flush_ms
        cdef object follower_replication_throttled_replicas
        cdef object index_interval_bytes
        cdef object leader_replication_throttled_replicas
        cdef object local_retention_bytes
        cdef object local_retention_ms
        cdef object max_compaction_lag_ms
        cdef object max_decompressed_message_bytes
        cdef object max_message_bytes
        cdef object message_timestamp_after_max_ms
        cdef object message_timestamp_before_max_ms
        cdef object message_timestamp_type
        cdef object min_cleanable_dirty_ratio
        cdef object min_compaction_lag_ms
        cdef object min_insync_replicas
        cdef object preallocate
        cdef object remote_copy_lag_bytes
        cdef object remote_copy_lag_ms
        cdef object remote_log_copy_disable
        cdef object remote_log_delete_on_disable
        cdef object remote_storage_enable
        cdef object retention_bytes
        cdef object retention_ms
        cdef object segment_bytes
        cdef object segment_index_bytes
        cdef object segment_jitter_ms
        cdef object segment_ms
        cdef object stores_as_sent
        cdef object unclean_leader_election_enable
