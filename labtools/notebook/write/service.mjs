// The site's service worker: a second visit to a page with a kernel to write needs no network. A file whose
// name holds its hash is taken from the cache; all else comes from the network, and else from the cache.
const CACHE = 'fieldguide', HASHED = /-[0-9a-f]{16}\./;

self.addEventListener('install', () => self.skipWaiting());
self.addEventListener('activate', (event) => event.waitUntil(self.clients.claim()));
self.addEventListener('message', (event) => event.waitUntil(Promise.all(event.data.map((url) => answer(new Request(url)).catch(() => {})))));
self.addEventListener('fetch', (event) => {
  if (event.request.method === 'GET' && event.request.url.startsWith(self.registration.scope)) event.respondWith(answer(event.request));
});

async function answer(request) {
  const cache = await caches.open(CACHE), hashed = HASHED.test(request.url), known = hashed && (await cache.match(request));
  if (known) return known;
  try {
    const response = await fetch(request);
    if (response.status === 200) {
      if (hashed) await forgetOlder(cache, request.url);
      cache.put(request, response.clone()).catch(() => {}); // there may be no room for it
    }
    return response;
  } catch (error) {
    return (await cache.match(request, { ignoreSearch: true })) ?? Promise.reject(error);
  }
}

async function forgetOlder(cache, url) {
  for (const one of await cache.keys()) if (HASHED.test(one.url) && one.url.replace(HASHED, '.') === url.replace(HASHED, '.')) await cache.delete(one);
}
