# Bubbles in a container: docs/container.md says how to use it. `docker build -t bubbles .` needs no other file.
# PYTHON: any from 3.11 on for which requirements.lock has wheels. EXTRAS: "local" runs a model in the container (and needs OpenMP's
# library there), "" leaves that out.
# PACKAGES: programs of Debian's that the assistant is to have in its shell, such as "git ripgrep".
ARG PYTHON=3.13
ARG EXTRAS=local

FROM python:${PYTHON}-slim AS build
ARG EXTRAS
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
# Whatever a registry hands out is compared with the lock here, and from then on only what was compared is used. Whoever has a registry of
# their own passes it as a secret, which stays in no layer: --secret id=pip.conf,src=$HOME/.config/pip/pip.conf
COPY requirements.lock .
RUN awk '/^[a-z].*==/ { wanted = /^(pip|setuptools)==/ } wanted' requirements.lock > first.lock
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    pip install -q --require-hashes -r first.lock && \
    pip wheel -q --require-hashes --no-deps --no-build-isolation -w /wheels -r requirements.lock
COPY . .
RUN python -m venv --without-pip /opt/bubbles && \
    pip wheel -q --no-index --no-deps --no-build-isolation -w /wheels . && \
    pip --python /opt/bubbles/bin/python install -q --no-index --find-links /wheels "bubbles-assistant${EXTRAS:+[$EXTRAS]}"

FROM python:${PYTHON}-slim
ARG EXTRAS
ARG PACKAGES=""
RUN set -- $PACKAGES; \
    case ,$EXTRAS, in *,local,* | *,all,*) set -- libgomp1 "$@" ;; esac; \
    [ $# = 0 ] || { apt-get update -qq && apt-get install -qq -y --no-install-recommends "$@" && rm -rf /var/lib/apt/lists/*; }
# 1000 is whom most machines call their first user: a directory of theirs can be the home without a change of its owner.
RUN useradd --uid 1000 --user-group --create-home --shell /bin/bash bubbles && \
    install -d -m 0700 -o bubbles -g bubbles /home/bubbles/.bubbles
COPY --from=build /opt/bubbles /opt/bubbles
# The sockets lie in the home: containers that share the one share the others, so `docker compose run --rm bubbles agent` finds who runs.
ENV PATH=/opt/bubbles/bin:$PATH LANG=C.UTF-8 XDG_RUNTIME_DIR=/home/bubbles/.bubbles/run CREDENTIALS_DIRECTORY=/run/secrets
USER 1000:1000
WORKDIR /home/bubbles
VOLUME /home/bubbles/.bubbles
STOPSIGNAL SIGTERM
# Whether all three answer, each within two seconds. `bubbles status` says more, and 1 for a message that is held for a person too: no new
# container mends that.
HEALTHCHECK --interval=60s --timeout=10s --start-period=30s CMD ["python", "-c", "from bubbles.paths import Home; \
from bubbles.programs.running import CORE, look; \
ran = look(Home.find()).daemons; raise SystemExit(any(ran[name].answer is None for name in CORE))"]
ENTRYPOINT ["bubbles"]
CMD ["gateway"]
