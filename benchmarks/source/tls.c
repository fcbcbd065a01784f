/* TLS by OpenSSL's shared library, loaded at run time, so that building needs no OpenSSL headers.
 *
 * The prototypes below are OpenSSL 3's documented ABI (1.1 has the same); only what is used is declared.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>

#include "source.h"

#define FILETYPE_PEM 1
#define ERROR_WANT_READ 2
#define ERROR_WANT_WRITE 3
#define ERROR_ZERO_RETURN 6
#define CTRL_MODE 33
#define MODE_PARTIAL_AND_MOVING (1 | 2 | 0x10) /* partial write, moving buffer, release buffers */

static void *context;
static void *(*method)(void);
static void *(*context_new)(void *);
static long (*context_control)(void *, int, long, void *);
static int (*use_certificate)(void *, const char *);
static int (*use_key)(void *, const char *, int);
static void *(*ssl_new)(void *);
static int (*ssl_set_fd)(void *, int);
static int (*ssl_accept)(void *);
static int (*ssl_read)(void *, void *, int);
static int (*ssl_write)(void *, const void *, int);
static int (*ssl_get_error)(const void *, int);
static void (*ssl_free)(void *);
static void (*error_clear)(void);

static const char *const NAMES[] = {"libssl.so.3", "libssl.so.1.1", "libssl.so"};

static const char *find_functions(void) {
    void *library = NULL;
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES && !library; i++)
        library = dlopen(NAMES[i], RTLD_NOW | RTLD_GLOBAL);
    if (!library)
        return "no libssl.so.3 to load: install OpenSSL's run-time library, or measure without TLS";
    struct {
        void *slot;
        const char *name;
    } wanted[] = {
        {&method, "TLS_server_method"},
        {&context_new, "SSL_CTX_new"},
        {&context_control, "SSL_CTX_ctrl"},
        {&use_certificate, "SSL_CTX_use_certificate_chain_file"},
        {&use_key, "SSL_CTX_use_PrivateKey_file"},
        {&ssl_new, "SSL_new"},
        {&ssl_set_fd, "SSL_set_fd"},
        {&ssl_accept, "SSL_accept"},
        {&ssl_read, "SSL_read"},
        {&ssl_write, "SSL_write"},
        {&ssl_get_error, "SSL_get_error"},
        {&ssl_free, "SSL_free"},
        {&error_clear, "ERR_clear_error"},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (!(*(void **)wanted[i].slot = dlsym(library, wanted[i].name)))
            return wanted[i].name;
    return NULL;
}

const char *tls_open(const char *certificate, const char *key) {
    const char *wrong = find_functions();
    if (wrong)
        return wrong;
    context = context_new(method());
    if (!context || use_certificate(context, certificate) != 1 || use_key(context, key, FILETYPE_PEM) != 1)
        return "the certificate or its key cannot be used";
    context_control(context, CTRL_MODE, MODE_PARTIAL_AND_MOVING, NULL);
    return NULL;
}

void *tls_accept(int fd) {
    void *tls = ssl_new(context);
    if (tls)
        ssl_set_fd(tls, fd);
    return tls;
}

static bool later(void *tls, int result) {
    int error = ssl_get_error(tls, result);
    return error == ERROR_WANT_READ || error == ERROR_WANT_WRITE;
}

int tls_handshake(void *tls) {
    error_clear();
    int result = ssl_accept(tls);
    if (result == 1)
        return 1;
    return later(tls, result) ? 0 : -1;
}

long tls_read(void *tls, char *into, size_t size) {
    error_clear();
    int result = ssl_read(tls, into, size > 1 << 30 ? 1 << 30 : (int)size);
    if (result > 0)
        return result;
    if (ssl_get_error(tls, result) == ERROR_ZERO_RETURN)
        return 0;
    errno = later(tls, result) ? EAGAIN : ECONNRESET;
    return -1;
}

long tls_write(void *tls, const char *data, size_t size) {
    error_clear();
    int result = ssl_write(tls, data, size > 1 << 30 ? 1 << 30 : (int)size);
    if (result > 0)
        return result;
    errno = later(tls, result) ? EAGAIN : ECONNRESET;
    return -1;
}

void tls_close(void *tls) {
    ssl_free(tls);
}
