# A server or a client of a federation: docker run ... serve | join | certs ... (docs/deploy.md)
FROM python:3.12-slim AS wheel
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels . \
    && echo "pisces-fl[network] @ file://$(echo /wheels/pisces_fl-*.whl)" > /wheels/requirements.txt

FROM python:3.12-slim
# Arguments for pip, such as another index that has smaller builds of torch.
ARG PIP_ARGUMENTS=""
COPY --from=wheel /wheels /wheels
# hadolint ignore=SC2086
RUN pip install --no-cache-dir $PIP_ARGUMENTS --requirement /wheels/requirements.txt \
    && rm -r /wheels \
    && useradd --create-home --uid 10001 pisces \
    && install -d -o pisces /work /home/pisces/.cache
# By its number, which is known outside, too.
USER 10001
WORKDIR /work
EXPOSE 8440
STOPSIGNAL SIGTERM
ENTRYPOINT ["pisces"]
CMD ["--help"]
