# docker build -t odradek .  &&  docker run -p 9092:9092 odradek     serves localhost:9092
# docs/container.md describes the image. Testcontainers modules for Kafka can use it in place of the images that they know.
# The full image has the compiler that builds the core. None of its files gets into the final image.
FROM python:3.11 AS dependencies

# What changes least comes first, in layers of its own, which a change of the code does not rebuild.
COPY requirements /src/requirements
RUN python -m venv --without-pip /opt/odradek
RUN python /src/requirements/locked.py image /src/image.txt
RUN python -m pip --python /opt/odradek/bin/python install --no-cache-dir --require-hashes -r /src/image.txt
# A broker does not import kio, from which its messages are generated.
RUN python -m pip --python /opt/odradek/bin/python uninstall --yes kio crc32c
# Debug symbols are a third of the packages' size.
RUN find /opt/odradek -name "*.so" -exec strip --strip-unneeded "{}" +

FROM dependencies AS build

RUN python /src/requirements/locked.py build /src/build.txt
RUN python -m venv --without-pip /opt/build
RUN python -m pip --python /opt/build/bin/python install --no-cache-dir --require-hashes -r /src/build.txt

COPY pyproject.toml setup.py build_backend.py README.md LICENSE /src/
COPY protocol /src/protocol
COPY storage /src/storage
COPY broker /src/broker
COPY compiled /src/compiled
COPY lab /src/lab
COPY proxy /src/proxy
COPY server /src/server
COPY tools /src/tools
COPY odradek /src/odradek
# Modules that have not changed since the last build of the image are not compiled again.
RUN --mount=type=cache,target=/src/.cache/compiled python -m pip --python /opt/build/bin/python wheel --no-deps --no-build-isolation --wheel-dir /src/dist /src
RUN python -m pip --python /opt/odradek/bin/python install --no-deps --no-index --find-links /src/dist --prefix /opt/built odradek
RUN find /opt/built -name "*.so" -exec strip --strip-unneeded "{}" +

# Parts that need no interpreter: the health check, and holding a container's first signals. Health checks of compose
# files for other images call nc (busybox's has no -z), wget, and tools below /opt/bitnami/kafka.
FROM python:3.11 AS programs
RUN apt-get update && apt-get install --yes --no-install-recommends busybox netcat-traditional
COPY docker/src /src/docker
RUN mkdir -p /opt/programs /opt/bitnami
RUN gcc -O2 -Wall -s -o /opt/programs/odradek-image /src/docker/odradek-image.c
RUN ln -sfn /opt/kafka /opt/bitnami/kafka
RUN cp /bin/busybox /opt/programs/busybox
RUN cp /bin/nc.traditional /opt/programs/nc

FROM python:3.11-slim
LABEL org.opencontainers.image.title="Odradek" \
      org.opencontainers.image.description="A Kafka broker emulator for exactly-once work: real protocol, real segment files, staged failures." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.vendor="The Odradek authors" \
      org.opencontainers.image.base.name="docker.io/library/python:3.11-slim"
COPY --from=dependencies /opt/odradek /opt/odradek

# The scripts of apache/kafka and of confluentinc/cp-kafka, at their paths. Files that other start scripts change belong to
# the user. One COPY for each folder: a COPY to / would change the owner and the mode of /usr and /etc. A checkout that was
# made with umask 077 would make everything unreadable for the user, so each file gets its mode here.
COPY --chmod=755 docker/image/usr/local/bin /usr/local/bin
COPY --chmod=755 docker/image/usr/bin /usr/bin
COPY --chmod=755 docker/image/opt/kafka /opt/kafka
COPY --from=programs /opt/programs /usr/local/bin
COPY --from=programs /opt/bitnami /opt/bitnami
COPY --from=programs /usr/share/doc/busybox /usr/share/doc/busybox
COPY --from=programs /usr/share/doc/netcat-traditional /usr/share/doc/netcat-traditional
COPY --chmod=775 --chown=1000:0 docker/image/etc/kafka /etc/kafka
COPY --chmod=775 --chown=1000:0 docker/image/etc/confluent /etc/confluent
# Any user may write its records here. An anonymous volume, a named one and a tmpfs without options get this mode. Files of one
# user can be written by others of group 0.
COPY --chmod=2777 --chown=1000:0 docker/image/var/lib /var/lib

# Last, because it changes most often.
COPY --from=build /opt/built /opt/odradek

ENV PATH=$PATH:/opt/kafka/bin
USER 1000:1000
WORKDIR /var/lib/odradek
VOLUME /var/lib/kafka/data
EXPOSE 9092
# Each check waits 2 s for a response, so three checks end within 25 s. --start-interval needs Docker 25 or later, also to build.
HEALTHCHECK --interval=5s --timeout=5s --start-period=30s --start-interval=500ms --retries=3 CMD ["odradek-image", "health"]
ENTRYPOINT ["odradek-image", "hold", "odradek-container"]
