cdef extern from *:
    ctypedef class broker.replicas.partition.append_result.AppendResult [object PyTupleObject, check_size ignore]:
        cdef object error "ob_item[0]"
        cdef object base_offset "ob_item[1]"
        cdef object last_offset "ob_item[2]"
        cdef object log_append_time_ms "ob_item[3]"
        cdef object log_start_offset "ob_item[4]"
        cdef object duplicate "ob_item[5]"
        cdef object message "ob_item[6]"
        cdef object record_errors "ob_item[7]"
