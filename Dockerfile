# syntax=docker/dockerfile:1
# sie-server for CPUs. Dockerfile.cuda is the same with the CUDA kernels; tools/docker/check.sh checks both.
#
#   docker build -t sie --build-arg COMMIT=$(git rev-parse --short=12 HEAD) .
#   docker buildx build --platform linux/amd64,linux/arm64 …      # arm64 is compiled on amd64, not under emulation
#   docker run -p 8080:8080 -v sie-models:/app/.cache/huggingface sie

ARG GO=1.26.8
ARG RUST=1.95.0

FROM --platform=$BUILDPLATFORM rust:${RUST}-slim-bookworm AS rust

# Debian 12 in both stages: the binary needs the C library of the machine that built it, or a newer one.
FROM --platform=$BUILDPLATFORM golang:${GO}-bookworm AS build
COPY --from=rust /usr/local/cargo /usr/local/cargo
COPY --from=rust /usr/local/rustup /usr/local/rustup
ENV CARGO_HOME=/usr/local/cargo RUSTUP_HOME=/usr/local/rustup PATH=/usr/local/cargo/bin:$PATH
WORKDIR /src
# BuildKit says what is built and on what; both are empty elsewhere, and the build is native.
ARG TARGETARCH
ARG BUILDARCH

# What changes least comes first, so that a change of the source repeats none of it.
COPY tools/setup/deps.sh tools/setup/
RUN tools/setup/deps.sh build \
 && if [ "$TARGETARCH" != "$BUILDARCH" ]; then tools/setup/deps.sh "$TARGETARCH"; fi && rm -rf /var/lib/apt/lists/*
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY tools/setup/tokenizers.sh tools/setup/arm64.sh tools/setup/
COPY runtime/tokenizer/rust runtime/tokenizer/rust
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    if [ "$TARGETARCH" = "$BUILDARCH" ]; then tools/setup/tokenizers.sh; \
    else tools/setup/arm64.sh tokenizers; fi
COPY Makefile CMakeLists.txt ./
COPY cmake cmake
COPY csrc csrc
COPY kernels kernels
RUN if [ "$TARGETARCH" = "$BUILDARCH" ]; then make libsie; else tools/setup/arm64.sh libsie; fi

COPY . .
ARG COMMIT=unknown
RUN --mount=type=cache,target=/go/pkg/mod \
    --mount=type=cache,target=/root/.cache/go-build \
    --mount=type=cache,target=/usr/local/cargo/registry \
    if [ "$TARGETARCH" = "$BUILDARCH" ]; then make build COMMIT="$COMMIT"; \
    else make build-arm64 COMMIT="$COMMIT" && mv bin/arm64/sie-* bin/; fi && make sbom

FROM debian:12-slim
# The user and the cache's place are those of the reference server's image: volumes fit both.
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates libgcc-s1 \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/log/apt /var/log/dpkg.log \
 && useradd --uid 1000 --user-group --home-dir /app --no-create-home --shell /usr/sbin/nologin sie \
 && install -d -o sie -g sie /app /app/.cache /app/.cache/huggingface
COPY LICENSE NOTICE /usr/share/doc/sie/
# What is in the program, and under which licences.
COPY --from=build /src/bin/sbom/sie-server.cdx.json /usr/share/doc/sie/
COPY --from=build /src/bin/sbom/sie-server.licenses.txt /usr/share/doc/sie/
COPY --from=build /src/bin/sie-server /usr/local/bin/
WORKDIR /app
USER 1000:1000
ENV HF_HOME=/app/.cache/huggingface \
    SIE_DEVICE=cpu
VOLUME /app/.cache/huggingface
EXPOSE 8080
STOPSIGNAL SIGTERM
# Ready means that the models to be preloaded are there, which may take as long as their download.
HEALTHCHECK --interval=15s --timeout=5s --start-period=10m --retries=3 CMD ["sie-server", "health"]
ENTRYPOINT ["sie-server"]
CMD ["serve"]
ARG COMMIT=unknown
LABEL org.opencontainers.image.title="sie-server" \
      org.opencontainers.image.description="A self-hosted inference engine for embeddings, for CPUs" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="$COMMIT"
