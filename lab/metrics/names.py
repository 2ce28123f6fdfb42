"""The help line of each metric, by name. docs/metrics.md has them in a table.

The names of counters have no ``_total`` suffix here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

HELP: Final[Mapping[str, str]] = {
    "kafka_network_requestmetrics_requests": "Requests, by API and version.",
    "kafka_network_requestmetrics_errors": "Error codes in responses, by API; NONE is one of them.",
    "kafka_network_requestmetrics_totaltimems": "Time from the arrival of a request to its response, in milliseconds.",
    "kafka_network_requestmetrics_localtimems": "Time until the handler responded or began to wait, in milliseconds.",
    "kafka_network_requestmetrics_remotetimems": (
        "Time in which the handler waited for replicas, data or members, in milliseconds."
    ),
    "kafka_server_brokertopicmetrics_messagesin": "Records that producers have appended.",
    "kafka_server_brokertopicmetrics_bytesin": "Bytes of records that producers have appended.",
    "kafka_server_brokertopicmetrics_bytesout": "Bytes of records that were sent to consumers.",
    "kafka_server_brokertopicmetrics_totalproducerequests": "Produce requests.",
    "kafka_server_brokertopicmetrics_failedproducerequests": "Produce requests of which a partition failed.",
    "kafka_server_brokertopicmetrics_totalfetchrequests": "Fetch requests.",
    "kafka_server_brokertopicmetrics_failedfetchrequests": "Fetch requests of which a partition failed.",
    "kafka_server_brokertopicmetrics_totalsharefetchrequests": "ShareFetch requests.",
    "kafka_server_brokertopicmetrics_failedsharefetchrequests": "ShareFetch requests of which a partition failed.",
    "kafka_server_brokertopicmetrics_totalshareacknowledgementrequests": "ShareAcknowledge requests.",
    "kafka_server_brokertopicmetrics_failedshareacknowledgementrequests": (
        "ShareAcknowledge requests of which a partition failed."
    ),
    "odradek_fenced_producers": "Responses that told a producer that a newer one has its transactional id.",
    "kafka_brokers": "Running nodes.",
    "kafka_broker_info": "A running node, with its advertised address.",
    "odradek_broker_state": "The state of a node, as the control port says it.",
    "kafka_controller_kafkacontroller_activecontrollercount": "The controller, which is the process itself.",
    "kafka_controller_kafkacontroller_activebrokercount": "Nodes that are not fenced.",
    "kafka_controller_kafkacontroller_fencedbrokercount": "Nodes that are fenced: stopped or killed.",
    "kafka_controller_kafkacontroller_globaltopiccount": "Topics.",
    "kafka_controller_kafkacontroller_globalpartitioncount": "Partitions.",
    "kafka_controller_kafkacontroller_offlinepartitionscount": "Partitions without a leader.",
    "kafka_server_replicamanager_leadercount": "Partitions that a node leads.",
    "kafka_server_replicamanager_partitioncount": "Partitions that a node has a replica of.",
    "kafka_server_replicamanager_underreplicatedpartitions": (
        "Partitions that a node leads, and whose in-sync replicas are not all of its replicas."
    ),
    "kafka_server_socket_server_metrics_connection_count": "Connections of clients.",
    "kafka_topic_partitions": "Partitions of a topic.",
    "odradek_partitions_left_out": "Partitions that are not shown individually.",
    "kafka_topic_partition_leader": "The node that leads a partition; -1 without one.",
    "kafka_topic_partition_leader_is_preferred": "1 if the first of its replicas leads a partition.",
    "kafka_topic_partition_replicas": "Replicas of a partition.",
    "kafka_topic_partition_in_sync_replica": "In-sync replicas of a partition.",
    "kafka_topic_partition_under_replicated_partition": "1 if not all replicas of a partition are in sync.",
    "kafka_topic_partition_current_offset": "The high watermark of a partition.",
    "kafka_topic_partition_oldest_offset": "The log start offset of a partition.",
    "kafka_log_log_logstartoffset": "The log start offset of the leader's log.",
    "kafka_log_log_logendoffset": "The log end offset of the leader's log.",
    "kafka_log_log_numlogsegments": "Segments of the leader's log.",
    "kafka_log_log_size": "Bytes of the leader's log.",
    "odradek_partition_last_stable_offset": "The last stable offset: how far read_committed consumers may read.",
    "odradek_partition_last_stable_offset_lag": "Records from the last stable offset to the high watermark.",
    "odradek_partition_last_stable_offset_lag_seconds": (
        "How long the transaction that limits the last stable offset has been open; 0 if there is none."
    ),
    "odradek_transactions": "Transactional ids, by the state of their transaction (TransactionState of Kafka).",
    "odradek_hanging_transactions": "Transactions open in a partition that no coordinator will end.",
    "odradek_oldest_open_transaction_seconds": "How long the oldest open transaction has been open.",
    "kafka_consumergroup_members": "Members of a group.",
    "kafka_consumergroup_current_offset": "The offset that a group has committed.",
    "kafka_consumergroup_current_offset_sum": "The sum of a group's committed offsets in a topic.",
    "kafka_consumergroup_lag": "Records from the committed offset to the last stable offset.",
    "kafka_consumergroup_lag_sum": "The sum of a group's lag in a topic.",
    "kafka_server_group_coordinator_metrics_share_group_count": "Share groups, by state.",
    "kafka_server_sharepartitionmetrics_inflightmessagecount": (
        "Offsets from the start offset to the end offset of a share partition."
    ),
    "kafka_server_sharepartitionmetrics_inflightbatchcount": "Batches in flight of a share partition.",
    "kafka_server_sharepartitionmetrics_acquisitionlocktimeout": "Records whose acquisition lock has run out.",
    "kafka_server_sharegroupmetrics_recordacknowledgements": "Acknowledged records, by the type.",
    "kafka_server_sharegroupmetrics_deadletterqueuerecordcount": (
        "Records that were written to the dead-letter queue of a share group."
    ),
    "odradek_share_dead_letters_lost": "Records that were archived, and not written to the dead-letter queue.",
    "odradek_share_deliveries": "Records that ShareFetch requests have acquired.",
    "odradek_share_partition_records": "Records in flight of a share partition, by their state.",
    "odradek_share_partition_start_offset": "The start offset of a share partition.",
    "odradek_share_partition_lag": "Records that are neither acknowledged nor archived.",
    "odradek_event_loop_lag_seconds": "How late the event loop was at the last measurement.",
    "odradek_event_loop_lag_max_seconds": "The largest lag of the event loop in the last minute.",
    "odradek_clock_ahead_seconds": "How far the broker's clock has been advanced.",
    "odradek_fault_rule_hits": "Hits of the rules that inject faults.",
    "process_virtual_memory_bytes": "Virtual memory size in bytes.",
    "process_resident_memory_bytes": "Resident memory size in bytes.",
    "process_start_time_seconds": "Start time of the process since unix epoch in seconds.",
    "process_cpu_seconds": "Total user and system CPU time spent in seconds.",
    "process_open_fds": "Number of open file descriptors.",
    "process_max_fds": "Maximum number of open file descriptors.",
}
