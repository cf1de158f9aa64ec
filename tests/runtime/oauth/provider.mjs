// A real OAuth 2 provider and a service that takes its tokens, for tests:
//
//     node provider.mjs FOLDER_OF_NODE_MODULES CERTIFICATE KEY
//
// It listens on a free port of 127.0.0.1, prints {"port": N}, and ends when its input does. The provider is the
// certified `oidc-provider` as it is. Around it are a service below /api, which knows the provider's tokens, and /control,
// by which a test has the next requests slowed down or their answers lost, and asks what was asked.

import { readFileSync } from 'node:fs';
import { createServer } from 'node:https';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [modules, certificate, key] = process.argv.slice(2);
const { Provider } = await import(pathToFileURL(join(modules, 'oidc-provider/lib/index.js')));

const GRANTS = ['authorization_code', 'refresh_token', 'urn:ietf:params:oauth:grant-type:device_code'];
const native = {
  application_type: 'native',
  grant_types: GRANTS,
  redirect_uris: ['http://127.0.0.1/callback'],
  response_types: ['code'],
};
const control = {
  slow_down: 0, lose_answers: 0, lose_requests: 0, is_down: false, device_lifetime_s: 300, lifetime_s: 3600,
};
const asked = [];

const server = createServer({ cert: readFileSync(certificate), key: readFileSync(key) });
server.listen(0, '127.0.0.1', () => {
  const { port } = server.address();
  const provider = new Provider(`https://localhost:${port}`, configuration());
  const handle = provider.callback();
  server.on('request', (request, response) => answer(provider, handle, request, response));
  process.stdout.write(`${JSON.stringify({ port })}\n`);
});
process.stdin.resume().on('end', () => process.exit(0));

function configuration() {
  return {
    clients: [
      { ...native, client_id: 'native', token_endpoint_auth_method: 'none' },
      {
        ...native, client_id: 'with secret', client_secret: 'a:b+c%20d/e&f', token_endpoint_auth_method: 'client_secret_basic',
      },
      {
        ...native, client_id: 'posting', client_secret: 'a:b+c%20d/e&f', token_endpoint_auth_method: 'client_secret_post',
      },
    ],
    scopes: ['openid', 'offline_access', 'read', 'write', 'delete'],
    cookies: { keys: ['for tests'] },
    features: {
      deviceFlow: { enabled: true },
      revocation: { enabled: true },
      introspection: { enabled: true },
    },
    pkce: { required: (context, client) => client.clientAuthMethod === 'none' },
    issueRefreshToken: (context, client) => client.grantTypeAllowed('refresh_token'),
    rotateRefreshToken: true,
    ttl: {
      AccessToken: () => control.lifetime_s,
      DeviceCode: () => control.device_lifetime_s,
      RefreshToken: 86_400,
      Grant: 86_400,
      Session: 86_400,
      Interaction: 3600,
      AuthorizationCode: 60,
      IdToken: 3600,
    },
  };
}

async function answer(provider, handle, request, response) {
  const { pathname } = new URL(request.url, 'https://localhost');
  if (pathname === '/control') {
    const { forget, ...changes } = JSON.parse(await body(request) || '{}');
    Object.assign(control, changes);
    if (forget) await (await provider.AccessToken.find(forget))?.destroy(); // as if it had expired early
    return reply(response, 200, { asked });
  }
  if (pathname.startsWith('/api')) return serve(provider, request, response, pathname);
  if (request.method !== 'POST' || !pathname.startsWith('/token')) return handle(request, response);
  if (control.is_down) return reply(response, 503, {});
  if (control.lose_requests > 0) {
    control.lose_requests -= 1;
    return request.socket.destroy();
  }
  const content = await body(request);
  const grant = new URLSearchParams(content).get('grant_type') ?? pathname;
  asked.push(grant);
  if (control.slow_down > 0 && grant.endsWith('device_code')) {
    control.slow_down -= 1;
    return reply(response, 400, { error: 'slow_down' });
  }
  if (control.lose_answers > 0) {
    control.lose_answers -= 1;
    response.end = () => request.socket.destroy();
  }
  request.body = Object.fromEntries(new URLSearchParams(content)); // as a framework in front of it would
  return handle(request, response);
}

// A service that takes the tokens of the provider, and echoes what it got.
async function serve(provider, request, response, pathname) {
  const content = await body(request);
  const token = (request.headers.authorization ?? '').replace(/^Bearer /, '');
  const known = await provider.AccessToken.find(token);
  const is_valid = pathname !== '/api/never' && known !== undefined && known.isValid;
  asked.push(`${request.method} ${pathname} ${is_valid ? 200 : 401}`);
  if (is_valid) return reply(response, 200, { token, body: content });
  const reason = pathname === '/api/unexplained' ? '' : ', error="invalid_token"';
  return reply(response, 401, { token }, { 'WWW-Authenticate': `Bearer realm="api"${reason}` });
}

async function body(request) {
  let content = '';
  for await (const piece of request) content += piece;
  return content;
}

function reply(response, status, given, headers = {}) {
  const content = JSON.stringify(given);
  response.writeHead(status, { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(content), ...headers });
  response.end(content);
}
