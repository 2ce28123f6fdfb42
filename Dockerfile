# docker build -t odradek .  &&  docker run -p 9092:9092 odradek     serves localhost:9092
# docs/container.md describes the image. Testcontainers modules for Kafka take it in place of the images that they know.
# The full image has the compiler that builds the core; no file of it gets into the image that is kept.
FROM python:3.11 AS build

# What changes least comes first: after a change of code a rebuild takes seconds.
COPY requirements/image.txt /src/requirements/image.txt
RUN python -m venv /opt/odradek
RUN /opt/odradek/bin/pip install --no-cache-dir --require-hashes -r /src/requirements/image.txt

COPY pyproject.toml setup.py README.md LICENSE /src/
COPY protocol /src/protocol
COPY storage /src/storage
COPY broker /src/broker
COPY tools /src/tools
COPY odradek /src/odradek
RUN /opt/odradek/bin/pip install --no-cache-dir --no-deps --no-build-isolation /src
# They have built and installed the package, and a broker needs neither.
RUN /opt/odradek/bin/pip uninstall --yes setuptools pip

FROM python:3.11-slim
COPY --from=build /opt/odradek /opt/odradek

# The scripts of apache/kafka and of confluentinc/cp-kafka, at their places. What start scripts of others change belongs to
# the user. One COPY for each folder: a COPY to / would change the owner and the mode of /usr and /etc.
COPY docker/image/usr/local/bin /usr/local/bin
COPY docker/image/usr/bin /usr/bin
COPY docker/image/opt/kafka /opt/kafka
COPY docker/image/etc/odradek /etc/odradek
COPY --chown=1000:1000 docker/image/etc/kafka /etc/kafka
COPY --chown=1000:1000 docker/image/etc/confluent /etc/confluent
COPY --chown=1000:1000 docker/image/var/lib/odradek /var/lib/odradek
COPY --chown=1000:1000 docker/image/var/lib/kafka/data /var/lib/kafka/data
COPY docker/image/var/lib/redpanda /var/lib/redpanda

USER 1000:1000
WORKDIR /var/lib/odradek
VOLUME /var/lib/kafka/data
EXPOSE 9092
HEALTHCHECK --interval=5s --timeout=5s --start-period=5s --retries=3 CMD ["odradek", "health"]
ENTRYPOINT ["odradek-container"]
