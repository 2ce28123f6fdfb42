"""Features that Kafka does not have: fault rules, trace, views, explanations, metrics, spans, the control port."""
