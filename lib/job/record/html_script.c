/* SPDX-License-Identifier: Apache-2.0 */
/* The script of the page of a job that runs; see record_html_live.  The server
 * sends "page" with what the element main holds, and "end" after the last of
 * these. */
#include "lib/job/record/html_parts.h"

const char html_script[] =
    "'use strict';\n"
    "const main = document.querySelector('main');\n"
    "const note = document.getElementById('note');\n"
    "const events = new EventSource('events' + location.search);\n"
    "events.addEventListener('page', event => {\n"
    "  const open = [...main.querySelectorAll('details')].map(d => d.open);\n"
    "  main.innerHTML = event.data;\n"
    "  main.querySelectorAll('details').forEach((d, i) => {\n"
    "    if (i in open) d.open = open[i];\n"
    "  });\n"
    "  document.title = main.querySelector('.state').textContent + ': ' +\n"
    "    main.querySelector('h1').textContent;\n"
    "  note.textContent = '';\n"
    "});\n"
    "events.addEventListener('end', () => {\n"
    "  events.close();\n"
    "  note.textContent = 'The job has ended.';\n"
    "});\n"
    "events.addEventListener('error', () => {\n"
    "  note.textContent = 'hvdrun does not answer. This page is not "
    "current.';\n"
    "});\n";
