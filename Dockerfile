# docker build -t odradek .  &&  docker run -p 9092:9092 odradek     serves localhost:9092
# docs/container.md describes the image. Testcontainers modules for Kafka take it in place of the images that they know.
# The full image has the compiler that builds the core; no file of it gets into the image that is kept.
FROM python:3.11 AS dependencies

# What changes least comes first, in layers of its own: a change of code leaves them as they are, here and in the image.
COPY requirements/image.txt /src/requirements/image.txt
RUN python -m venv --without-pip /opt/odradek
RUN python -m pip --python /opt/odradek/bin/python install --no-cache-dir --require-hashes -r /src/requirements/image.txt
# A broker imports nothing of kio, which its messages are generated from.
RUN python -m pip --python /opt/odradek/bin/python uninstall --yes kio crc32c
# Symbols of debuggers are a third of what the packages bring.
RUN find /opt/odradek -name "*.so" -exec strip --strip-unneeded "{}" +

FROM dependencies AS build

COPY requirements/build.txt /src/requirements/build.txt
RUN python -m venv --without-pip /opt/build
RUN python -m pip --python /opt/build/bin/python install --no-cache-dir --require-hashes -r /src/requirements/build.txt

COPY pyproject.toml setup.py build_backend.py README.md LICENSE /src/
COPY protocol /src/protocol
COPY storage /src/storage
COPY broker /src/broker
COPY tools /src/tools
COPY odradek /src/odradek
# Modules that have not changed since the last build of the image are not compiled again.
RUN --mount=type=cache,target=/src/.cache/compiled python -m pip --python /opt/build/bin/python wheel --no-deps --no-build-isolation --wheel-dir /src/dist /src
RUN python -m pip --python /opt/odradek/bin/python install --no-deps --no-index --find-links /src/dist --prefix /opt/built odradek
RUN find /opt/built -name "*.so" -exec strip --strip-unneeded "{}" +

FROM python:3.11-slim
LABEL org.opencontainers.image.title="Odradek" \
      org.opencontainers.image.description="A Kafka broker emulator for exactly-once work: real protocol, real segment files, staged failures." \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.vendor="The Odradek authors" \
      org.opencontainers.image.base.name="docker.io/library/python:3.11-slim"
COPY --from=dependencies /opt/odradek /opt/odradek

# The scripts of apache/kafka and of confluentinc/cp-kafka, at their places. What start scripts of others change belongs to
# the user. One COPY for each folder: a COPY to / would change the owner and the mode of /usr and /etc. A checkout that was
# made with umask 077 would take everything from the user: each file gets its mode here.
COPY --chmod=755 docker/image/usr/local/bin /usr/local/bin
COPY --chmod=755 docker/image/usr/bin /usr/bin
COPY --chmod=755 docker/image/opt/kafka /opt/kafka
COPY --chmod=755 docker/image/etc/odradek /etc/odradek
COPY --chmod=755 --chown=1000:1000 docker/image/etc/kafka /etc/kafka
COPY --chmod=755 --chown=1000:1000 docker/image/etc/confluent /etc/confluent
COPY --chmod=755 --chown=1000:1000 docker/image/var/lib/odradek /var/lib/odradek
COPY --chmod=755 --chown=1000:1000 docker/image/var/lib/kafka/data /var/lib/kafka/data
COPY --chmod=755 docker/image/var/lib/redpanda /var/lib/redpanda

# Last, since it changes most.
COPY --from=build /opt/built /opt/odradek

USER 1000:1000
WORKDIR /var/lib/odradek
VOLUME /var/lib/kafka/data
EXPOSE 9092
HEALTHCHECK --interval=5s --timeout=5s --start-period=5s --retries=3 CMD ["odradek", "health"]
ENTRYPOINT ["odradek-container"]
