# mgraph for CPUs: `docker build -t mgraph .`, then `docker run --rm mgraph demo`.
# Models come from a folder on the host; compiled programs are kept in a volume:
#   docker run --rm -i -v "$PWD:/work" -v mgraph-programs:/home/mgraph/.cache mgraph decode -c decoder.yml < text
FROM python:3.14-slim AS build
WORKDIR /source
COPY constraints.txt ./
RUN pip install --no-cache-dir -c constraints.txt hatchling
COPY pyproject.toml README.md LICENSE ./
COPY mgraph mgraph
COPY layers layers
COPY nmt nmt
RUN python -m hatchling build -t wheel -d /wheels

FROM python:3.14-slim
COPY constraints.txt /tmp/
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir -c /tmp/constraints.txt /wheels/*.whl \
    && useradd --create-home mgraph \
    && install -d -o mgraph -g mgraph -m 700 /home/mgraph/.cache
USER mgraph
WORKDIR /work
ENTRYPOINT ["mgraph"]
CMD ["demo"]
