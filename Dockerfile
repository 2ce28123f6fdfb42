# docker build -t odradek .  &&  docker run -p 9092:9092 odradek     serves localhost:9092
FROM python:3.11-slim

# What changes least comes first: after a change of code a rebuild takes seconds.
COPY requirements/runtime.txt /opt/odradek/requirements/runtime.txt
RUN pip install --no-cache-dir --require-hashes -r /opt/odradek/requirements/runtime.txt

COPY pyproject.toml setup.py README.md LICENSE /opt/odradek/
COPY protocol /opt/odradek/protocol
COPY storage /opt/odradek/storage
COPY broker /opt/odradek/broker
COPY odradek /opt/odradek/odradek
RUN pip install --no-cache-dir --no-deps --no-build-isolation /opt/odradek

COPY docker/server.properties /etc/odradek/server.properties
COPY --chown=1000:1000 docker/data /var/lib/kafka/data

USER 1000:1000
VOLUME /var/lib/kafka/data
EXPOSE 9092
HEALTHCHECK --interval=5s --timeout=5s --start-period=5s --retries=3 CMD ["odradek", "health"]
ENTRYPOINT ["odradek", "serve", "--config", "/etc/odradek/server.properties"]
