#line 1 "arguments"
template <class WarpbookT> struct warpbook_kind { static constexpr char of = __is_enum(WarpbookT) ? 'i' : '?'; };
template <class WarpbookT> struct warpbook_kind<WarpbookT*> { static constexpr char of = 'p'; };
#define WARPBOOK_KIND(WarpbookT, kind) template <> struct warpbook_kind<WarpbookT> { static constexpr char of = kind; };
WARPBOOK_KIND(int, 'i') WARPBOOK_KIND(unsigned, 'i') WARPBOOK_KIND(long, 'l') WARPBOOK_KIND(unsigned long, 'l')
WARPBOOK_KIND(long long, 'l') WARPBOOK_KIND(unsigned long long, 'l') WARPBOOK_KIND(bool, 'i') WARPBOOK_KIND(char, 'i')
WARPBOOK_KIND(signed char, 'i') WARPBOOK_KIND(unsigned char, 'i') WARPBOOK_KIND(short, 'i')
WARPBOOK_KIND(unsigned short, 'i') WARPBOOK_KIND(float, 'f') WARPBOOK_KIND(double, 'd')
template <class... WarpbookT> __device__ constexpr bool warpbook_takes(void (*)(WarpbookT...), const char* passed)
{
    const char kinds[] = {warpbook_kind<WarpbookT>::of..., 0};
    for (int i = 0; i < sizeof(kinds); ++i) if (kinds[i] != passed[i] && !(kinds[i] == 'i' && passed[i] == 'l')) return false;
    return true;
}
