def page(measured, work): return ""
