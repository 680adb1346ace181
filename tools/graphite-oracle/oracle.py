"""Reference oracle around the original graphite-web.

  run.sh eval  [FILE]   read a JSON job (FILE or stdin), answer all its requests, write JSON to stdout
  run.sh serve [PORT]   HTTP on 127.0.0.1: all graphite-web URLs plus POST /oracle/load (body: {"series": [...]}; replaces)

Job: {"series":[{"name":"a.b","start":1700000000,"step":10,"values":[1,null,2.5]}, ...],
      "requests":[{"path":"/render","params":{"target":["sumSeries(a.*)"],"from":1700000000,"until":1700000600,
                   "now":1700000600,"format":"json"}}, ...]}
Answer: [{"status":200,"type":"application/json","json":...} | {"status":..,"text":..}, ...]
ORACLE_BACKEND=memory (default; exact points) or whisper (one .wsp per series; optional per-series keys
"retentions":[[10,360],[60,1440]], "xff":0.5, "agg":"average"; points written with now = last timestamp).
"""
import json
import os
import signal
import sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
os.environ.setdefault('DJANGO_SETTINGS_MODULE', 'oracle_settings')
import warnings
warnings.simplefilter('ignore')
import django
django.setup()
from django.conf import settings
from django.core.management import call_command
call_command('migrate', run_syncdb=True, verbosity=0)
from django.test import Client

REQUEST_SECONDS = 3   # some intervals never end in graphite-web


def expire(signum, frame):
    raise TimeoutError('the oracle gave up after %d s' % REQUEST_SECONDS)


signal.signal(signal.SIGALRM, expire)
BACKEND = os.environ.get('ORACLE_BACKEND', 'memory')


def load(series):
    from graphite.storage import STORE
    tagged = [s['name'] for s in series if ';' in s['name']]
    if BACKEND == 'memory':
        import memfinder
        memfinder.clear()
        for s in series:
            memfinder.add(STORE.tagdb.parse(s['name']).path if ';' in s['name'] else s['name'],
                          s['start'], s['step'], s['values'])
    else:
        import shutil, whisper
        from graphite.tags.utils import TaggedSeries
        shutil.rmtree(settings.WHISPER_DIR); os.makedirs(settings.WHISPER_DIR)
        for s in series:
            name = STORE.tagdb.parse(s['name']).path if ';' in s['name'] else s['name']
            p = os.path.join(settings.WHISPER_DIR, TaggedSeries.encode(name, sep=os.sep) + '.wsp')
            os.makedirs(os.path.dirname(p), exist_ok=True)
            whisper.create(p, [tuple(r) for r in s.get('retentions', [[s['step'], max(len(s['values']) * 2, 60)]])],
                           xFilesFactor=s.get('xff', 0.5), aggregationMethod=s.get('agg', 'average'))
            pts = [(s['start'] + i * s['step'], v) for i, v in enumerate(s['values']) if v is not None]
            now = s['start'] + s['step'] * len(s['values'])
            whisper.update_many(p, pts, now=now)
            if pts:
                os.utime(p, (pts[-1][0], pts[-1][0]))   # readers take it for the time of the last write
    for t in tagged:
        STORE.tagdb.tag_series(t)


def answer(client, req):
    params = dict(req.get('params', {}))
    path = req.get('path', '/render')
    if path == '/render':
        params.setdefault('format', 'json')
    signal.alarm(REQUEST_SECONDS)
    try:
        r = (client.post if req.get('method') == 'POST' else client.get)(path, params)
    except Exception as e:   # graphite-web lets some errors escape as exceptions -> HTTP 500 in production
        return {'status': 500, 'exception': '%s: %s' % (type(e).__name__, e)}
    finally:
        signal.alarm(0)
    ct = r.get('Content-Type', '')
    body = r.content
    out = {'status': r.status_code, 'type': ct}
    if 'json' in ct:
        try:
            # Python writes infinities that other JSON readers refuse: they travel as texts.
            body = body.replace(b'-Infinity', b'-1e9999').replace(b'Infinity', b'1e9999')
            out['json'] = json.loads(body.replace(b'-1e9999', b'"-inf"').replace(b'1e9999', b'"inf"')); return out
        except ValueError:
            pass
    if ct in ('application/pickle', 'application/x-msgpack'):
        import msgpack, pickle
        out['json'] = plain(pickle.loads(body) if 'pickle' in ct else msgpack.unpackb(body))
        return out
    if ct.startswith('text/'):
        out['text'] = body.decode('utf-8', 'replace')
    else:
        import base64
        out['base64'] = base64.b64encode(body).decode()
    return out


def plain(value):
    """Lists, dictionaries and constants of a decoded answer; infinities as texts."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, float) and value in (float('inf'), float('-inf')):
        return str(value)
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def main():
    mode = sys.argv[1] if len(sys.argv) > 1 else 'eval'
    if mode == 'eval':
        job = json.load(open(sys.argv[2]) if len(sys.argv) > 2 else sys.stdin)
        load(job.get('series', []))
        c = Client(raise_request_exception=True)
        json.dump([answer(c, r) for r in job['requests']], sys.stdout)
        print()
    elif mode == 'serve':
        port = int(sys.argv[2]) if len(sys.argv) > 2 else 19310
        from wsgiref.simple_server import make_server, WSGIRequestHandler
        from django.core.wsgi import get_wsgi_application
        app = get_wsgi_application()

        def wrapped(env, start_response):
            if env['PATH_INFO'] == '/oracle/load' and env['REQUEST_METHOD'] == 'POST':
                n = int(env.get('CONTENT_LENGTH') or 0)
                job = json.loads(env['wsgi.input'].read(n))
                load(job['series'])
                start_response('200 OK', [('Content-Type', 'application/json')])
                return [json.dumps({'loaded': len(job['series'])}).encode()]
            return app(env, start_response)

        class Quiet(WSGIRequestHandler):
            def log_message(self, *a): pass
        make_server('127.0.0.1', port, wrapped, handler_class=Quiet).serve_forever()


main()
